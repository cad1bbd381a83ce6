"""Words. What differs from use to use is a row of a table here, not a second function.

``layout``     texts made comparable whatever their line breaks and composed characters, with the
               way back
``sentences``  `SENTENCES`: where a sentence ends
``words``      words and their stems, function words, number words
``languages``  which language a text is in
``tokens``     of MiniLM, and where its files lie; where the first N end
``common``     longest common substring and subsequence
"""
