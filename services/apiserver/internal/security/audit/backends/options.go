package backends

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"binnacle/services/apiserver/internal/security/audit"
)

// Mode says when an event is delivered.
type Mode string

// The modes.
const (
	Batch          Mode = "batch"
	Blocking       Mode = "blocking"
	BlockingStrict Mode = "blocking-strict"
)

// Modes are all of them.
func Modes() []string { return []string{string(Batch), string(Blocking), string(BlockingStrict)} }

// Options of a backend of any sort.
type Options struct {
	Mode     string
	Batch    BatchOptions
	Truncate TruncateOptions
	Version  string
}

// BatchOptions of the mode batch.
type BatchOptions struct {
	// BufferSize is how many events may wait, MaxSize how many go together, MaxWait how
	// long the first of them waits for others.
	BufferSize, MaxSize int
	MaxWait             time.Duration
	// Throttle bounds batches a second.
	Throttle bool
	QPS      float32
	Burst    int
}

// TruncateOptions bound events and batches in bytes.
type TruncateOptions struct {
	Enabled                    bool
	MaxBatchSize, MaxEventSize int64
}

// Validate tells what is wrong with the options of a backend in use, in the words of
// Kubernetes.
func (o *Options) Validate(name string) (errs []error) {
	for _, err := range []error{o.validateBatch(name), o.Truncate.validate(name), o.validateVersion()} {
		if err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

func (o *Options) validateBatch(name string) error {
	if !slices.Contains(Modes(), o.Mode) {
		return fmt.Errorf("invalid audit %s mode %s, allowed modes are %q", name, o.Mode, strings.Join(Modes(), ","))
	}
	b := &o.Batch
	switch {
	case Mode(o.Mode) != Batch:
		return nil
	case b.BufferSize <= 0:
		return fmt.Errorf("invalid audit batch %s buffer size %v, must be a positive number", name, b.BufferSize)
	case b.MaxSize <= 0:
		return fmt.Errorf("invalid audit batch %s max batch size %v, must be a positive number", name, b.MaxSize)
	case b.Throttle && b.QPS <= 0:
		return fmt.Errorf("invalid audit batch %s throttle QPS %v, must be a positive number", name, b.QPS)
	case b.Throttle && b.Burst <= 0:
		return fmt.Errorf("invalid audit batch %s throttle burst %v, must be a positive number", name, b.Burst)
	}
	return nil
}

func (t *TruncateOptions) validate(name string) error {
	switch {
	case t.MaxEventSize <= 0:
		return fmt.Errorf("invalid audit truncate %s max event size %v, must be a positive number", name, t.MaxEventSize)
	case t.MaxBatchSize < t.MaxEventSize:
		return fmt.Errorf("invalid audit truncate %s max batch size %v, must be greater than max event size (%v)", name, t.MaxBatchSize, t.MaxEventSize)
	}
	return nil
}

func (o *Options) validateVersion() error {
	if o.Version != audit.Version {
		return fmt.Errorf("invalid group version, allowed versions are %q", audit.Version)
	}
	return nil
}
