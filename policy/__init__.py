"""Decisions. Pure: no asyncio, no IO, no clock, no randomness. The gateway never imports this
package."""
