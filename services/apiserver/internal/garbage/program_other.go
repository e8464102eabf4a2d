//go:build !linux

package garbage

// program is the file that the process runs.
type program struct{}

// unmap does nothing: systems differ in what they do with pages of files.
func (*program) unmap() {}
