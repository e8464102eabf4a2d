package storage

import "fmt"

// Seal describes a value whose stored form differs from its plain form, or that is unusable.
type Seal struct {
	// Stored is the stored form, by which histories are compared.
	Stored []byte
	// Stale means that the value would be stored differently today, so the next write should
	// rewrite it.
	Stale bool
	// Err means that the value is corrupt. The plain value is absent.
	Err *CorruptObjectError
}

// CorruptObjectError reports that a stored value cannot be read. It has the text of Err.
type CorruptObjectError struct {
	Key string
	// Revision is the revision of the value.
	Revision int64
	// Undecodable means that the value was decrypted but is no object. Otherwise decryption failed.
	Undecodable bool
	// Transient means that the same value may be readable later, for example because a key management
	// service did not respond.
	Transient bool
	Err       error
}

func (e *CorruptObjectError) Error() string { return e.Err.Error() }
func (e *CorruptObjectError) Unwrap() error { return e.Err }

// SealError reports that a value could not be converted to its stored form. Nothing was written.
// It has the text of Err.
type SealError struct {
	Key string
	Err error
}

func (e *SealError) Error() string { return e.Err.Error() }
func (e *SealError) Unwrap() error { return e.Err }

// Corrupt returns why the value cannot be read: *CorruptObjectError, or nil.
func (kv *KeyValue) Corrupt() error {
	if kv.Seal == nil || kv.Seal.Err == nil {
		return nil
	}
	return kv.Seal.Err
}

// Stale reports whether the next write should rewrite the value.
func (kv *KeyValue) Stale() bool { return kv.Seal != nil && kv.Seal.Stale }

// storedForm returns the stored form of a value.
func storedForm(value []byte, s *Seal) []byte {
	if s != nil {
		return s.Stored
	}
	return value
}

// String omits data that may be secret.
func (s *Seal) String() string {
	return fmt.Sprintf("sealed %d bytes, stale %t, error %v", len(s.Stored), s.Stale, s.Err != nil)
}
