"""The texts that an encoder's cost is measured on: invented, as long as those of STS (5 to 27 words, 12 on average).

Whoever changes a text raises VERSION: speeds are of these texts.
"""

from __future__ import annotations

VERSION = 1
NAMES = (
    "Anna", "Peter", "Maria", "John", "Laura", "David", "Sarah", "Paul", "Emma", "Mark", "Julia", "Simon", "Clara",
    "Thomas", "Helen", "Martin", "Alice", "George", "Nina", "Frank", "Lucy", "Henry", "Diana", "Victor", "Rose",
    "Oscar", "Irene", "Daniel", "Ruth", "Adam", "Vera", "Robert", "Grace", "Samuel", "Eva", "Walter", "Jane",
    "Philip", "Marie", "Edward", "Ella", "Stephen", "Kate", "Richard", "Olivia", "Michael", "Amy", "Charles",
    "Sophie", "William", "Linda", "James", "Carol", "Andrew", "Susan", "Joseph", "Karen", "Arthur", "Nancy",
    "Patrick", "Judith", "Gregory", "Monica", "Leo",
)
# Blocks of eight, each of which holds short, middling and long ones: any number of blocks has the same average length.
TEMPLATES = (
    "{} is peeling an orange.",
    "{} rides a horse downhill.",
    "{} is tuning an old guitar.",
    "{} cut the bread while the soup boiled.",
    "{} told reporters that the bridge would open in May.",
    "Two dogs chase {} across a field that is white with snow.",
    "{} said on Tuesday that the company would close its oldest mill and move two hundred jobs north.",
    "Before the storm reached the coast, {} and eleven neighbours had carried every boat from the beach to the church, "
    "where they covered them with tarpaulins, ropes and stones.",
    "{} is feeding a goat.",
    "A cat watches {} eat.",
    "{} paints a fence dark green.",
    "{} lost both matches on the first day.",
    "The mayor and {} opened a library beside the station.",
    "{} climbed the ladder slowly because the third rung had been broken.",
    "According to {}, prices of wheat rose by four percent in March after a dry and unusually warm winter.",
    "The judge ordered {} to return the paintings within thirty days, although the museum had argued for years that nobody "
    "could prove where they had been kept.",
    "{} is slicing a cucumber.",
    "Nobody believes what {} wrote.",
    "{} plays chess with a child.",
    "A train to {} was late again yesterday.",
    "{} explains how a lake freezes from the top down.",
    "Three women and {} are waiting for a bus in the rain.",
    "{} has agreed to sell the vineyard to a group of farmers who have rented parts of it since spring.",
    "When the lights went out, {} asked the audience to stay seated, walked to the piano in the dark and played until the "
    "engineers had found the fault.",
    "{} jumps over a puddle.",
    "{} did not sign it.",
    "The baby laughs at {} loudly.",
    "{} sold more tickets than any other singer.",
    "A helicopter brought {} and the injured climber to hospital.",
    "{} is standing on a wooden stage and holds a silver trumpet.",
    "Police are looking for a driver who hit {} on the ring road and left without stopping to help.",
    "{} wrote in the report that the river had risen faster than expected, that the pumps had failed twice, and that the "
    "upper villages were warned too late.",
    "{} mixes flour with water.",
    "{} won by two points.",
    "A man throws {} a ball.",
    "{} folds a letter and seals the envelope.",
    "The talks between {} and the union ended without result.",
    "{} waters the plants on the balcony every evening after the news.",
    "The minister thanked {} for a plan that would cut waiting times in clinics by half within five years.",
    "Although {} had never sailed before, the crew let her steer through the narrow channel between the islands, where the "
    "wind drops every evening about six o'clock.",
    "{} is washing a bicycle.",
    "The dog follows {} home.",
    "{} sings while the others dance.",
    "{} bought a lamp made of blue glass.",
    "Shares fell after {} announced that the chairman would resign.",
    "A boy shows {} how to fold a swan out of paper.",
    "{} will meet the owners of the harbour next week to discuss who pays for the repair of the pier.",
    "Researchers led by {} counted the bees in forty gardens over two summers and found that small gardens with many kinds "
    "of flowers had the most of them.",
    "{} closes the heavy door.",
    "{} can hear the sea.",
    "The teacher asked {} to read.",
    "{} carries a bucket of sand to the tent.",
    "The film about {} was shown in nearly every village.",
    "{} is pushing a cart with apples and pears through the market.",
    "The court found that {} had not known of the contract and therefore could not be held to it.",
    "On the last morning of the journey {} woke before the others, lit the stove, and watched the caravan of camels move "
    "slowly along the edge of the salt lake.",
    "{} repairs a broken clock.",
    "The soup that {} cooked burned.",
    "{} walks along a frozen river.",
    "A waiter brings {} a plate of fish.",
    "{} denied that the letter had been written in April.",
    "The girls and {} build a hut from branches near the pond.",
    "Nearly half of those whom {} asked would rather walk to work than wait for a tram that is full.",
    "If the harvest is as poor as {} fears, the cooperative will have to buy grain abroad for the first time since the "
    "great flood thirty years ago.",
)
BLOCK = 8
MOST = len(TEMPLATES) * len(NAMES)


def cost_texts(count: int) -> list[str]:
    """The first `count` texts, at most MOST, all different: the templates with one name each, then again with the next."""
    size, names = len(TEMPLATES), len(NAMES)
    return [TEMPLATES[i % size].format(NAMES[(i % size + i // size) % names]) for i in range(min(count, MOST))]
