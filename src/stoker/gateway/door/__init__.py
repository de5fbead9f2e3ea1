"""The public door: what is open without a key, which pages may ask from browsers, certificates, and who came by."""
