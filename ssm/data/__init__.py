"""From text to batches: corpora -> tokenizers -> the token store on disk -> batches for training and evaluation.

Nothing here ever holds a whole corpus: documents stream in, tokens stream out to shards, and a batch reads only its own
tokens.
"""
