"""One condition decided: mixings proposed in floats, and what each is worth with every rounding counted."""
