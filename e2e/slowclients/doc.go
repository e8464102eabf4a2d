// Package slowclients reads and writes through slow connections to a real server. No client that
// keeps reading may be disconnected.
//
// A link is a TCP proxy with small kernel buffers that passes a number of bytes per second in each
// direction. A cell is one combination of a rate, a client and a workload, with its own link. The
// table shows the server of package h2 ("ours") beside that of net/http ("standard"), if the server
// has the flag that selects it.
//
// Cells run concurrently, because they wait for their links. The short form has a few cells.
// BINNACLE_SLOWCLIENTS=long runs all. BINNACLE_SLOWCLIENTS_ONLY is a regular expression that
// selects cells, such as "260 KB/s".
package slowclients
