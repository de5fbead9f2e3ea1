"""What do we say ourselves, in each dialect: errors, signs of life, which models there are?"""
