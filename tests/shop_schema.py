"""The smallest schema that has every kind of rule and question: one section, two profiles."""

RAW = {
    "domain": "shops",
    "language": "en",
    "title": "{shop} in {year}",
    "subdomain": "trade",
    "context": ["shop", "year", "trade"],
    "drop": 1,
    "profile": ["goods"],
    "profiles": {"Tea": [["green tea"]], "Rope": [["hemp rope"]]},
    "fields": {
        "shop": {"rule": "invented", "form": ["{firm} Stores"]},
        "year": {"rule": "year", "low": 2001, "high": 2009},
        "opened": {"rule": "date", "year": "year"},
        "closed": {"rule": "date", "after": "opened", "days": [10, 20]},
        "cash": {"rule": "amount", "low": 100, "high": 200, "unit": "crowns"},
        "card": {"rule": "amount", "low": 300, "high": 400, "unit": "crowns"},
        "takings": {"rule": "sum", "of": ["cash", "card"], "unit": "crowns"},
        "share": {"rule": "percent", "of": ["cash", "takings"]},
        "owner": {"rule": "person"},
    },
    "sections": [
        {
            "id": "all",
            "heading": "Report",
            "facts": [
                {"id": "goods", "say": ["{shop} sells {goods}.", "At {shop} one [buys|finds] {goods}."]},
                {"id": "time", "say": ["It opened on {opened} and closed on {closed}."]},
                {"id": "money", "say": ["It took {takings}: {cash} in cash ({share}) and {card} by card."]},
                {
                    "id": "owner",
                    "say": ["The owner is {owner}."],
                    "lost": {"what": "who owns {shop}", "ask": "Who owns {shop}?"},
                },
            ],
        }
    ],
    "questions": {
        "factual": [
            {
                "id": "money",
                "ask": ["What did {shop} take?"],
                "say": ["It took {takings}.", "In cash it was {cash}.", "By card it was {card}."],
            }
        ],
        "multi-hop": [
            {
                "id": "span",
                "ask": ["How long was {shop} open?"],
                "derive": {"gap": {"rule": "days", "of": ["opened", "closed"]}},
                "say": ["It opened on {opened}.", "It closed on {closed}.", "That is {gap}."],
            }
        ],
        "summary": [{"id": "all", "section": "all", "ask": ["Sum up {shop}."]}],
    },
    "unanswerable": ["The report does not say {what}.", "Nothing else tells it.", "There is no answer."],
}
