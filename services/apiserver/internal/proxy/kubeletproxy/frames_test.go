package kubeletproxy

import (
	"errors"
	"io"
	"net"
	"strings"
	"testing"
)

// TestKubeletFramesAreLimited checks that frames up to the limits are read unchanged, and that a
// longer frame ends the connection.
func TestKubeletFramesAreLimited(t *testing.T) {
	frame := func(start string, length int) string {
		return start + "\x00" + string([]byte{byte(length >> 16), byte(length >> 8), byte(length)}) + strings.Repeat("x", length)
	}
	const data, reply = "\x00\x00\x00\x01", "\x80\x03\x00\x02"
	valid := frame(data, 0) + frame(data, MaxKubeletFrame) + frame(reply, 0) + frame(reply, maxControlFrame)
	for name, long := range map[string]string{
		"data":          frame(data, MaxKubeletFrame+1),
		"control frame": frame(reply, maxControlFrame+1),
	} {
		t.Run(name, func(t *testing.T) {
			kubelet, server := net.Pipe()
			defer kubelet.Close()
			go func() { _, _ = io.WriteString(kubelet, valid+long) }()
			got, err := io.ReadAll(limitSPDY(server))
			if !errors.Is(err, errKubeletFrame) || string(got) != valid {
				t.Errorf("got %d bytes, error %v, want %d bytes, error %v", len(got), err, len(valid), errKubeletFrame)
			}
		})
	}
}
