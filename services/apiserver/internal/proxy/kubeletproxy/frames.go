package kubeletproxy

import (
	"bufio"
	"encoding/binary"
	"errors"
	"net"
)

// MaxFrame is the maximum size in bytes of a WebSocket frame of a translated command. The library
// that splits frames into channels holds a whole frame in memory, of up to 32 MiB. kubectl sends
// frames of 33 KiB.
const MaxFrame = 1 << 20

var errFrame = errors.New("the WebSocket frame is too long")

// frameLimiter is a WebSocket connection. Reading fails at a frame that is longer than MaxFrame.
type frameLimiter struct {
	net.Conn
	reader *bufio.Reader
	unread uint64 // bytes of the current frame that were not read yet
}

// limitFrames returns the connection and its buffers with the limit of MaxFrame. It keeps buffered
// input.
func limitFrames(conn net.Conn, rw *bufio.ReadWriter) (net.Conn, *bufio.ReadWriter) {
	l := &frameLimiter{Conn: conn, reader: rw.Reader}
	return l, bufio.NewReadWriter(bufio.NewReader(l), rw.Writer)
}

// Read implements net.Conn. It never reads beyond the end of a frame.
func (l *frameLimiter) Read(b []byte) (int, error) {
	if l.unread == 0 {
		var err error
		if l.unread, err = frameSize(l.reader); err != nil {
			return 0, err
		}
	}
	n, err := l.reader.Read(b[:min(uint64(len(b)), l.unread)])
	l.unread -= uint64(n)
	return n, err
}

// frameSize returns the size of the next frame in bytes, with its header. It consumes nothing. The
// header (RFC 6455, 5.2) is: flags, 1 byte; mask bit and length, 1 byte; if that length is 126 or
// 127, the actual length in 2 or 8 bytes; a key of 4 bytes if the mask bit is set.
func frameSize(reader *bufio.Reader) (uint64, error) {
	head, err := reader.Peek(2)
	if err != nil {
		return 0, err
	}
	size, payload := 2, uint64(head[1]&0x7f)
	switch payload {
	case 126:
		size += 2
	case 127:
		size += 8
	}
	if head[1]&0x80 != 0 { // masked
		size += 4
	}
	if head, err = reader.Peek(size); err != nil {
		return 0, err
	}
	switch payload {
	case 126:
		payload = uint64(binary.BigEndian.Uint16(head[2:]))
	case 127:
		payload = binary.BigEndian.Uint64(head[2:])
	}
	if payload > MaxFrame {
		return 0, errFrame
	}
	return uint64(size) + payload, nil
}

// Limits of the SPDY frames that a kubelet sends for a translated command. The SPDY library queues up
// to 50 frames of each of five streams, of up to 16 MiB, for a slow client.
const (
	// MaxKubeletFrame is the maximum size in bytes of a frame. Kubelets send frames of 32 KiB.
	MaxKubeletFrame = 64 << 10
	// maxControlFrame is the maximum size in bytes of a control frame. Its header fields are
	// compressed, and take up to a thousand times its size in memory. Kubelets send frames of some
	// twenty bytes.
	maxControlFrame = 256
	// maxReplies is the number of streams of a command: input, output, error output, result and
	// terminal sizes. A kubelet replies once to each.
	maxReplies = 5
)

// Types of the control frames that have compressed header fields.
const (
	typeSynStream = 1
	typeSynReply  = 2
	typeHeaders   = 8
)

var (
	errKubeletFrame = errors.New("the SPDY frame of the kubelet is too long")
	// errKubeletHeaders means that a kubelet opened a stream, sent additional headers of a stream,
	// or sent too many replies. Stock kubelets do none of these.
	errKubeletHeaders = errors.New("unexpected SPDY headers of the kubelet")
)

// spdyLimiter is a SPDY connection. Reading fails at a frame that exceeds the limits. Frames with
// header fields can only be replies, because the SPDY library keeps all streams that the other side
// opens, and queues expanded header fields.
type spdyLimiter struct {
	net.Conn
	reader  *bufio.Reader
	unread  int // bytes of the current frame that were not read yet
	replies int
}

// limitSPDY returns the connection with the limits of frames.
func limitSPDY(conn net.Conn) net.Conn {
	return &spdyLimiter{Conn: conn, reader: bufio.NewReader(conn)}
}

// Read implements net.Conn. It never reads beyond the end of a frame. The header of a frame is:
// stream, or version and type, 4 bytes; flags, 1 byte; length of the rest, 3 bytes. The first bit is
// set in a control frame.
func (l *spdyLimiter) Read(data []byte) (int, error) {
	const headerSize = 8
	if l.unread == 0 {
		head, err := l.reader.Peek(headerSize)
		if err != nil {
			return 0, err
		}
		length := int(binary.BigEndian.Uint32(head[4:]) & 0xffffff)
		isControl := head[0]&0x80 != 0
		if length > MaxKubeletFrame || isControl && length > maxControlFrame {
			return 0, errKubeletFrame
		}
		if isControl {
			if err := l.checkHeaders(binary.BigEndian.Uint16(head[2:])); err != nil {
				return 0, err
			}
		}
		l.unread = headerSize + length
	}
	n, err := l.reader.Read(data[:min(len(data), l.unread)])
	l.unread -= n
	return n, err
}

// checkHeaders returns an error for a control frame whose header fields a kubelet does not send.
func (l *spdyLimiter) checkHeaders(frameType uint16) error {
	switch frameType {
	case typeSynStream, typeHeaders:
		return errKubeletHeaders
	case typeSynReply:
		if l.replies++; l.replies > maxReplies {
			return errKubeletHeaders
		}
	}
	return nil
}
