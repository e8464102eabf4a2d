package jsoniter

import (
	"encoding/json"
	"io"
	"strconv"
	"unicode/utf8"
)

// Stream writes JSON to a buffer, and from there to a writer.
type Stream struct {
	// Error is the first error.
	Error error
	out   io.Writer // nil if only the buffer is filled
	buf   []byte
}

// NewStream returns a stream with a buffer of size bytes. out may be nil.
func NewStream(_ API, out io.Writer, size int) *Stream {
	return &Stream{out: out, buf: make([]byte, 0, size)}
}

// Pool returns a pool of streams with buffers of the same size.
func (s *Stream) Pool() *StreamPool { return &StreamPool{size: cap(s.buf)} }

// Buffer returns what is not flushed.
func (s *Stream) Buffer() []byte { return s.buf }

// SetBuffer replaces what is not flushed.
func (s *Stream) SetBuffer(b []byte) { s.buf = b }

// Write implements io.Writer. It flushes the buffer, unlike the other methods.
func (s *Stream) Write(p []byte) (int, error) {
	s.buf = append(s.buf, p...)
	if s.out == nil {
		return len(p), nil
	}
	n, err := s.out.Write(s.buf)
	s.buf = s.buf[n:]
	return n, err
}

// Flush writes the buffer to the writer.
func (s *Stream) Flush() error {
	if s.out == nil || s.Error != nil {
		return s.Error
	}
	if _, err := s.out.Write(s.buf); err != nil {
		s.Error = err
		return err
	}
	s.buf = s.buf[:0]
	return nil
}

// WriteRaw writes text as it is.
func (s *Stream) WriteRaw(text string) { s.buf = append(s.buf, text...) }

// WriteInt writes a number.
func (s *Stream) WriteInt(n int) { s.buf = strconv.AppendInt(s.buf, int64(n), 10) }

// WriteObjectStart writes an opening brace.
func (s *Stream) WriteObjectStart() { s.buf = append(s.buf, '{') }

// WriteObjectEnd writes a closing brace.
func (s *Stream) WriteObjectEnd() { s.buf = append(s.buf, '}') }

// WriteEmptyObject writes an object without fields.
func (s *Stream) WriteEmptyObject() { s.buf = append(s.buf, "{}"...) }

// WriteMore writes the comma between two elements.
func (s *Stream) WriteMore() { s.buf = append(s.buf, ',') }

// WriteObjectField writes a name with its colon. It escapes only what JSON requires.
func (s *Stream) WriteObjectField(name string) {
	s.writeString(name, false)
	s.buf = append(s.buf, ':')
}

// WriteVal writes a value as encoding/json does.
func (s *Stream) WriteVal(value any) {
	if text, ok := value.(string); ok {
		s.writeString(text, true)
		return
	}
	data, err := json.Marshal(value)
	if err != nil && s.Error == nil {
		s.Error = err
	}
	s.buf = append(s.buf, data...)
}

const hexDigits = "0123456789abcdef"

// writeString writes a quoted string. With html it also escapes invalid UTF-8 and what is unsafe in
// HTML and in JavaScript.
func (s *Stream) writeString(text string, html bool) {
	s.buf = append(s.buf, '"')
	start := 0
	for i := 0; i < len(text); {
		c := text[i]
		if c >= utf8.RuneSelf {
			if !html {
				i++
				continue
			}
			r, size := utf8.DecodeRuneInString(text[i:])
			switch {
			case r == utf8.RuneError && size == 1:
				s.buf = append(append(s.buf, text[start:i]...), `\ufffd`...)
			case r == '\u2028' || r == '\u2029':
				s.buf = append(append(s.buf, text[start:i]...), '\\', 'u', '2', '0', '2', hexDigits[r&0xf])
			default:
				i += size
				continue
			}
			i += size
			start = i
			continue
		}
		if c >= ' ' && c != '"' && c != '\\' && !(html && (c == '<' || c == '>' || c == '&')) {
			i++
			continue
		}
		s.buf = append(s.buf, text[start:i]...)
		switch c {
		case '\\', '"':
			s.buf = append(s.buf, '\\', c)
		case '\n':
			s.buf = append(s.buf, '\\', 'n')
		case '\r':
			s.buf = append(s.buf, '\\', 'r')
		case '\t':
			s.buf = append(s.buf, '\\', 't')
		default:
			s.buf = append(s.buf, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&0xf])
		}
		i++
		start = i
	}
	s.buf = append(append(s.buf, text[start:]...), '"')
}
