"""From text to batches: corpora -> tokenizers -> the token store on disk -> batches for training and evaluation.

A corpus is never in memory as a whole: documents and tokens are streamed, and a batch reads only its own tokens.
"""
