"""The paper's figures, with every setting it leaves open written down.

docs/reproduction.md argues each choice and says where our curves agree with the paper's claims.
Nothing else may depend on a study. Read ``setting`` first.
"""

__version__ = "0.2.0"
