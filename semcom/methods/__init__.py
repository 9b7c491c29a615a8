"""The methods: one paper, one file, one State."""
