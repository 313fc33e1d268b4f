"""Encoders and decoders, made from the declarations of messages when they are first needed.

Here belongs what turns a declaration (`wire.schema`) into code. Not here: frames and headers (`wire.codec`).
"""
