package schema

// marks is a set of small numbers.
type marks struct {
	few  uint64
	many []uint64
}

func newMarks(n int) marks {
	if n <= 64 {
		return marks{}
	}
	return marks{many: make([]uint64, (n+63)/64)}
}

func (m *marks) set(i int) {
	if m.many != nil {
		m.many[i/64] |= 1 << (i % 64)
	} else if i < 64 {
		m.few |= 1 << i
	}
}

func (m *marks) has(i int) bool {
	if m.many != nil {
		return m.many[i/64]&(1<<(i%64)) != 0
	}
	return i < 64 && m.few&(1<<i) != 0
}
