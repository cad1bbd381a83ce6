"""Drafts of questions about a user's own documents (`drafts`).

RAGEval's generation of documents and questions is notebook 40, step by step.
"""
