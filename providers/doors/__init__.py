"""Doors: how requests reach a provider, whatever dialect is spoken there.
`providers.doors.table.open_door` makes an upstream's."""
