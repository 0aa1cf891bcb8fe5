"""What is read: text, biological sequences, molecules, images, point clouds."""
