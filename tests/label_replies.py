"""What a model that makes no mistakes would reply to the prompts of the label steps."""

import json


def between(prompt, start, end):
    return prompt.split(start, 1)[1].split(end, 1)[0].strip()


def numbered(prompt, start):
    block = prompt.rsplit(start, 1)[1].split("\n\n")[0]
    return [line.split(". ", 1)[1] for line in block.strip().splitlines()]


def truth(claim, text):
    """The rule of the made judge: a claim is its words; 'not' before a text that holds the rest
    contradicts it.
    """
    if claim in text:
        return "Entailment"
    return "Contradiction" if claim.removeprefix("not ") in text else "Neutral"


def judge(prompt):
    """Answer like a model that makes no mistakes: claims are what stands between semicolons."""
    if "take a text apart" in prompt or "simple statements" in prompt:
        text = between(prompt, "Text:\n" if "Text:\n" in prompt else "Answer:\n", "\n\nReply")
        return {"claims": [part.strip() for part in text.split(";") if part.strip()]}
    if "take the key points" in prompt:
        points = prompt.rsplit("\nAnswer: ", 1)[1].split("; ")
        return {"keypoints": (points * 3)[: max(3, len(points))]}
    if "Reference text:\n" in prompt:
        text = between(prompt, "Reference text:\n", "\n\nEach claim")
        return {"labels": [truth(claim, text) for claim in numbered(prompt, "claims to check:")]}
    if "Answer of the system:\n" not in prompt:
        return {"labels": []}
    text = between(prompt, "Answer of the system:\n", "\n\nEach key")
    words = {"Entailment": "covered", "Contradiction": "contradicted", "Neutral": "neither"}
    return {"labels": [words[truth(point, text)] for point in numbered(prompt, "key points:")]}


def reply(body):
    return json.dumps(judge(body["messages"][0]["content"]))


def verdicts(prompt):
    context = prompt.split("Context:\n")[1].split("\n\nFor each")[0]
    lines = prompt.split("statements:\n")[1].split("\n\n")[0].splitlines()
    found = ["Yes" if line.split(". ", 1)[1] in context else "No" for line in lines]
    return {"labels": [{"why": "I looked.", "verdict": word} for word in found]}
