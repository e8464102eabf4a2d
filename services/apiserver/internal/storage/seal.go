package storage

import "fmt"

// Seal is what is known of a value that is not stored as it is used, or cannot be used.
type Seal struct {
	// Stored is what the store has, by which histories are compared.
	Stored []byte
	// Stale tells that the value would be stored otherwise today, so that it should
	// be written anew when it is written at all.
	Stale bool
	// Err tells that the value cannot be read, and is not there.
	Err *UnreadableError
}

// UnreadableError tells that the store has a value that cannot be read. Its text is
// that of Err.
type UnreadableError struct {
	Key string
	// Revision is that of the value.
	Revision int64
	// Undecodable tells that the value could be opened, and is no object; else it
	// could not be opened.
	Undecodable bool
	// Passing tells that the same value may be readable later.
	Passing bool
	Err     error
}

func (e *UnreadableError) Error() string { return e.Err.Error() }
func (e *UnreadableError) Unwrap() error { return e.Err }

// SealError tells that a value could not be made into what is to be stored; nothing was
// written. Its text is that of Err.
type SealError struct {
	Key string
	Err error
}

func (e *SealError) Error() string { return e.Err.Error() }
func (e *SealError) Unwrap() error { return e.Err }

// Unreadable is why the value cannot be read: *UnreadableError, or nil.
func (kv *KeyValue) Unreadable() error {
	if kv.Seal == nil || kv.Seal.Err == nil {
		return nil
	}
	return kv.Seal.Err
}

// Stale tells that the value should be written anew when it is written at all.
func (kv *KeyValue) Stale() bool { return kv.Seal != nil && kv.Seal.Stale }

// stored is what the store has.
func stored(value []byte, s *Seal) []byte {
	if s != nil {
		return s.Stored
	}
	return value
}

// String leaves out what may be secret.
func (s *Seal) String() string {
	return fmt.Sprintf("sealed %d bytes, stale %t, error %v", len(s.Stored), s.Stale, s.Err != nil)
}
