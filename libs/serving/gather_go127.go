//go:build go1.27 && !http2legacy

package serving

// gatherFrames does nothing: the library is the standard library's here, whose buffers are its own.
// Long answers cost more then; the tag http2legacy has the other one.
func gatherFrames() {}
