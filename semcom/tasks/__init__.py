"""What is asked of the received features, and how an answer is judged: classes of images, the images themselves."""
