package backends

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"binnacle/services/apiserver/internal/security/audit"
)

// Mode is the delivery mode of a backend.
type Mode string

// The modes.
const (
	Batch          Mode = "batch"
	Blocking       Mode = "blocking"
	BlockingStrict Mode = "blocking-strict"
)

// Modes returns all modes.
func Modes() []string { return []string{string(Batch), string(Blocking), string(BlockingStrict)} }

// Options are the options of all backends.
type Options struct {
	Mode     string
	Batch    BatchOptions
	Truncate TruncateOptions
	Version  string
}

// BatchOptions are the options of batch mode.
type BatchOptions struct {
	// BufferSize is the maximum number of queued events, MaxSize the maximum number of events in a
	// batch, and MaxWait how long the first event of a batch waits for others.
	BufferSize, MaxSize int
	MaxWait             time.Duration
	// Throttle limits the rate of batches to QPS per second with Burst.
	Throttle bool
	QPS      float32
	Burst    int
}

// TruncateOptions are the maximum sizes of events and batches in bytes.
type TruncateOptions struct {
	Enabled                    bool
	MaxBatchSize, MaxEventSize int64
}

// Validate returns the errors in the options of an enabled backend, with the messages of
// Kubernetes.
func (o *Options) Validate(name string) (errs []error) {
	for _, err := range []error{o.validateBatch(name), o.Truncate.validate(name), o.validateVersion()} {
		if err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// validateBatch returns an error if the mode or a batch option is invalid.
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

// validate returns an error if a size is invalid. name is the name of the backend in messages.
func (t *TruncateOptions) validate(name string) error {
	switch {
	case t.MaxEventSize <= 0:
		return fmt.Errorf("invalid audit truncate %s max event size %v, must be a positive number", name, t.MaxEventSize)
	case t.MaxBatchSize < t.MaxEventSize:
		return fmt.Errorf("invalid audit truncate %s max batch size %v, must be greater than max event size (%v)",
			name, t.MaxBatchSize, t.MaxEventSize)
	}
	return nil
}

// validateVersion returns an error for any version other than audit.Version.
func (o *Options) validateVersion() error {
	if o.Version != audit.Version {
		return fmt.Errorf("invalid group version, allowed versions are %q", audit.Version)
	}
	return nil
}
