//go:build go1.27 && !http2legacy

package serving

// gatherFrames does nothing: the buffers of the standard library are its own.
func gatherFrames() {}
