"""The one place that knows words. What differs from use to use is a row of a table there, not a second function.

``layout``     texts made comparable whatever their line breaks and composed characters, with the way back
``sentences``  `SENTENCES`: where a sentence ends
``words``      `WORDS`: what a word is and its stem; names, numbers, frequency ranks
``stance``     `ABSTENTIONS`: what says "I do not know"; yes, no, negation, guesses
``apart``      texts taken apart once for many comparisons: by the judge, the grader, the reader
``languages``  which language a text is in
``common``     longest common substring and subsequence
"""
