package kubeletproxy

import (
	"errors"
	"io"
	"net"
	"strings"
	"testing"
)

// TestKubeletFramesAreLimited checks that frames up to the limit are read unchanged, and that a longer
// frame ends the connection.
func TestKubeletFramesAreLimited(t *testing.T) {
	kubelet, server := net.Pipe()
	defer kubelet.Close()
	valid := "\x00\x00\x00\x01\x00\x00\x00\x00" + // without data
		"\x00\x00\x00\x01\x01\x04\x00\x00" + strings.Repeat("x", MaxKubeletFrame)
	go func() { _, _ = io.WriteString(kubelet, valid+"\x00\x00\x00\x01\x00\x04\x00\x01") }()
	got, err := io.ReadAll(limitSPDY(server))
	if !errors.Is(err, errKubeletFrame) || string(got) != valid {
		t.Errorf("got %d bytes, error %v, want %d bytes, error %v", len(got), err, len(valid), errKubeletFrame)
	}
}
