"""The answers wanted from received features, and their metrics: classes of images, or the images themselves."""
