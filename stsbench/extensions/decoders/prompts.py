"""The templates that several presets share, to the letter of the released code: {} stands for the text."""

from __future__ import annotations

END = 'means in one word:"'
PROMPTEOL = f'This sentence : "{{}}" {END}'
PRETENDED_COT = f'After thinking step by step , this sentence : "{{}}" {END}'
KNOWLEDGE = (
    "The essence of a sentence is often captured by its main subjects and actions, while descriptive terms provide "
    f'additional but less central details. With this in mind , this sentence : "{{}}" {END}'
)
IRRELEVANT = f'The irrelevant information of this sentence : "{{}}" {END}'
# Two each for classification, sentiment, paraphrase and information extraction.
METAEOL = (
    "In this task, you're presented with a text excerpt. Your task is to categorize the excerpt into a broad category "
    "such as 'Education', 'Technology', 'Health', 'Business', 'Environment', 'Politics', or 'Culture'. These "
    'categories help in organizing content for better accessibility and targeting. For this task, this sentence : "{}" '
    'should be classified under one general category in one word:"',
    "In this task, you're given a statement and you need to determine whether it's presenting an 'Opinion' or a "
    "'Fact'. This distinction is vital for information verification, educational purposes, and content analysis. For "
    'this task, this sentence : "{}" discriminates between opinion and fact in one word:"',
    "In this task, you're given a review from an online platform. Your task is to generate a rating for the product "
    "based on the review on a scale of 1-5, where 1 means 'extremely negative' and 5 means 'extremely positive'. For "
    'this task, this sentence : "{}" reflects the sentiment in one word:"',
    "In this task, you're reading a personal diary entry. Your task is to identify the predominant emotion expressed, "
    'such as joy, sadness, anger, fear, or love. For this task, this sentence : "{}" conveys the emotion in one word:"',
    "In this task, you're presented with two sentences. Your task is to assess whether the sentences convey the same "
    "meaning. Use 'identical', 'similar', 'different', or 'unrelated' to describe the relationship. To enhance the "
    'performance of this task, this sentence : "{}" means in one word:"',
    "In this task, you're given a sentence and a phrase. Your task is to determine if the phrase can be a contextual "
    "synonym within the given sentence. Options include 'yes', 'no', or 'partially'. To enhance the performance of "
    'this task, this sentence : "{}" means in one word:"',
    "In this task, you're examining a news article. Your task is to extract the most critical fact from the article. "
    'For this task, this sentence : "{}" encapsulates the key fact in one word:"',
    "In this task, you're reviewing a scientific abstract. Your task is to identify the main entities (e.g., proteins, "
    'diseases) and their relations (e.g., causes, treats). For this task, this sentence : "{}" highlights the primary '
    'entity or relation in one word:"',
)
BY_NAME: dict[str, tuple[str, ...]] = {
    "prompteol": (PROMPTEOL,), "pretended-cot": (PRETENDED_COT,), "knowledge": (KNOWLEDGE,), "metaeol": METAEOL,
    "ck": (KNOWLEDGE, PRETENDED_COT),  # the mean of two vectors, as Contrastive Prompting has it
}
