package compress

import "hash/crc32"

// combine returns the checksum of two concatenated parts, where length is that of the second:
// appending n zero bits to a message multiplies its remainder by x^n modulo the polynomial.
func combine(first, second uint32, length int64) uint32 {
	if length <= 0 {
		return first
	}
	return multiply(powers.xToThe(uint64(length)*8), first) ^ second
}

// multiply multiplies two polynomials over GF(2), bit-reflected, modulo the IEEE polynomial.
func multiply(a, b uint32) uint32 {
	var product uint32
	for bit := uint32(1) << 31; bit != 0; bit >>= 1 {
		if a&bit != 0 {
			product ^= b
		}
		if b&1 != 0 {
			b = b>>1 ^ crc32.IEEE
		} else {
			b >>= 1
		}
	}
	return product
}

// squares holds x^(2^i).
type squares [64]uint32

// powers holds the powers by which xToThe computes others.
var powers = func() (s squares) {
	s[0] = 1 << 30 // x
	for i := 1; i < len(s); i++ {
		s[i] = multiply(s[i-1], s[i-1])
	}
	return s
}()

// xToThe returns x^n modulo the polynomial, by repeated squaring.
func (s *squares) xToThe(n uint64) uint32 {
	p := uint32(1) << 31 // 1
	for i := range s {
		if n&(1<<i) != 0 {
			p = multiply(s[i], p)
		}
	}
	return p
}
