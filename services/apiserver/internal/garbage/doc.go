// Package garbage decides how much garbage may gather before it is collected, and when
// memory that is not needed any more goes back to the system: Pace, which the server runs
// from its start. It keeps nothing and knows nothing of what is kept; the
// budget of that is memory's.
package garbage
