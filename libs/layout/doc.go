// Package layout holds tests of the structure of the repository: the import graph, the modules, and
// the references in the documentation. It has no API.
package layout
