// Package modes creates authorizers from a configuration, and follows its file. New content
// replaces the old one between two requests. Invalid content is logged and the old one stays.
//
//	in use ── file changed, valid ────► in use (new; running calls finish with the old one)
//	   └───── file changed, invalid ──► in use (unchanged), logged and counted
//
// The server creates one Reloadable, and runs Follow if there is a file.
package modes
