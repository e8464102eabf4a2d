// Package garbage decides how much garbage may gather before it is collected: Pace, which
// the server runs from its start. It keeps nothing and knows nothing of what is kept; the
// budget of that is memory's.
package garbage
