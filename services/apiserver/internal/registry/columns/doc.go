// Package columns makes the columns of the Table representation. It owns the
// two columns that nearly every kind shares (Name and Age) and the texts that
// cells of several kinds have in common; it keeps no state. The files of the
// kinds call it while they declare themselves, and the cells it returns are
// called once per object version by whoever renders a table.
package columns
