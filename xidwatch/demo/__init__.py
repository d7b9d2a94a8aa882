"""The whole product on a machine without a GPU: a daemon on a stage, a story that is played to it, and what comes of it."""
