//go:build !linux

package garbage

// program is the file that the process runs.
type program struct{}

// unmap does nothing: systems differ in how they treat file pages.
func (*program) unmap() {}
