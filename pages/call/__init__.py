"""One call as a page shows it: what was asked, sent, decided and received. No HTTP, no
templates."""
