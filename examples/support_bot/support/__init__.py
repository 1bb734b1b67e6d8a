"""The support desk of a shop for garden tools: answers customers, sorts their questions, drafts mails."""
