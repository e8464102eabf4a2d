// Package modes makes authorizers of a configuration, and follows its file: a new
// content takes the place of the old one between two requests, a bad one is told
// of and the old one stays.
//
//	in use ── file changed, good ──► in use (new; questions under way end with the old)
//	   └───── file changed, bad ───► in use (unchanged), logged and counted
//
// The server makes one Reloadable and runs Follow where there is a file.
package modes
