// Package columns builds the columns of the Table representation. It defines the two columns that
// nearly every kind has (Name and Age) and the texts that cells of several kinds share. It has no
// state. Kind declarations call it. The cells that it returns are computed once for each object
// version when a table is encoded.
package columns
