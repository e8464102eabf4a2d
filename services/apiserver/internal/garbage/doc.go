// Package garbage decides how much garbage may gather before it is collected, and when
// memory that is not needed any more goes back to the system: Pacer.Pace, which the server
// runs from its start. So do pages of the program's own file. The filter that lets large bodies be worked on tells a Pacer of them.
// It keeps nothing and knows nothing of what is kept; the budget of that is memory's.
package garbage
