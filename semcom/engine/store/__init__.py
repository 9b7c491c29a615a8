"""Where the models of clients lie: at work as stacks, at rest as rows."""
