package fanout

import (
	"encoding/binary"
	"errors"
	"fmt"
)

const (
	// leastPart is the smallest payload limit at which large messages are split.
	leastPart = 1 << 10
	// maxParts is the number of parts of the largest message at that limit.
	maxParts = maxMessageBytes / leastPart
)

// part is a piece of a message that exceeds the server's payload limit.
type part struct {
	index, total int
	data         []byte // of the encoded message
}

// partSize returns an upper bound of the encoded size of a part without its data, in bytes.
func partSize(cluster string) int { return messageSize(cluster) + 3*binary.MaxVarintLen64 }

// appendPart appends the encoding of a part of m to b.
func appendPart(b []byte, m *message, p part) []byte {
	start := len(b)
	flags := byte(flagPart)
	if m.loaded {
		flags |= flagLoaded
	}
	b = appendHead(b, m, flags, 0)
	b = binary.AppendUvarint(b, uint64(p.index))
	b = binary.AppendUvarint(b, uint64(p.total))
	b = appendString(b, string(p.data))
	return appendChecksum(b, start)
}

// part reads the fields of a part after its head. The result shares memory with the input.
func (r *reader) part() (*part, error) {
	index, total := r.number(), r.number()
	data := r.bytes()
	switch {
	case r.err != nil:
		return nil, r.err
	case total < 2 || total > maxParts || index >= total:
		return nil, fmt.Errorf("part %d of %d", index, total)
	case len(data) == 0:
		return nil, errors.New("a part is empty")
	}
	return &part{index: int(index), total: int(total), data: data}, nil
}

// assembly joins the parts of one message. Parts must arrive in order. Otherwise the message is
// dropped, which shows as a gap. One goroutine owns it.
type assembly struct {
	of   message // head of the parts so far
	next int     // index of the expected part; 0: the first part of any message
	data []byte
}

// add adds a part, and returns the encoded message once it is complete.
func (a *assembly) add(m *message) (whole []byte, ok bool) {
	p := m.part
	if p.index == 0 {
		*a = assembly{of: message{cluster: m.cluster, epoch: m.epoch, chain: m.chain, previous: m.previous, revision: m.revision}}
	}
	if p.index != a.next || a.of.epoch != m.epoch || a.of.chain != m.chain || a.of.previous != m.previous || a.of.revision != m.revision ||
		len(a.data)+len(p.data) > maxMessageBytes {
		*a = assembly{}
		return nil, false
	}
	a.data = append(a.data, p.data...)
	if a.next++; a.next < p.total {
		return nil, false
	}
	whole = a.data
	*a = assembly{}
	return whole, true
}

// sendParts publishes an encoded message in parts of a size.
func (p *publisher) sendParts(m *message, whole []byte, size int) error {
	total := (len(whole) + size - 1) / size
	for i := range total {
		end := min((i+1)*size, len(whole))
		data := appendPart(nil, m, part{index: i, total: total, data: whole[i*size : end]})
		if err := p.f.transport.publish(p.f.changes, data); err != nil {
			return err
		}
		p.f.metrics.published(len(data))
	}
	return nil
}
