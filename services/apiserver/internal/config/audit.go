package config

import (
	"strings"
	"time"

	"github.com/spf13/pflag"

	"binnacle/libs/options"
	"binnacle/services/apiserver/internal/security/audit"
	"binnacle/services/apiserver/internal/security/audit/backends"
)

// AuditOptions configure the audit policy and the backends that receive audit events.
type AuditOptions struct {
	PolicyFile string // empty disables auditing
	Log        backends.LogOptions
	Webhook    backends.WebhookOptions
	// LatencyThreshold is the minimum duration of requests whose audit event records their latency;
	// 0 means half a second. No flag sets it.
	LatencyThreshold time.Duration
}

// newAuditOptions returns the default options.
func newAuditOptions() AuditOptions {
	truncate := backends.TruncateOptions{MaxBatchSize: 10 << 20, MaxEventSize: 100 << 10}
	return AuditOptions{
		Log: backends.LogOptions{
			Format: "json",
			Options: backends.Options{
				Mode:     string(backends.Blocking),
				Version:  audit.Version,
				Truncate: truncate,
				Batch:    backends.BatchOptions{BufferSize: 10000, MaxSize: 1},
			},
		},
		Webhook: backends.WebhookOptions{
			InitialBackoff: 10 * time.Second,
			Options: backends.Options{
				Mode:     string(backends.Batch),
				Version:  audit.Version,
				Truncate: truncate,
				Batch: backends.BatchOptions{
					BufferSize: 10000,
					MaxSize:    400,
					MaxWait:    30 * time.Second,
					Throttle:   true,
					QPS:        10,
					Burst:      15,
				},
			},
		},
	}
}

func (o *AuditOptions) addFlags(sections *options.Sections) {
	flagSet := sections.Set("auditing")
	flagSet.StringVar(&o.PolicyFile, "audit-policy-file", "",
		"File with the audit policy. If empty, no request is audited. The file is reloaded when it changes.")
	logOptions := &o.Log
	flagSet.StringVar(&logOptions.Path, "audit-log-path", "",
		"File to which audit events are written; '-' is standard output. If empty, no log is written.")
	flagSet.StringVar(&logOptions.Format, "audit-log-format", logOptions.Format, "Format of the audit log: json, or legacy for one line of text per event.")
	flagSet.IntVar(&logOptions.MaxAge, "audit-log-maxage", 0, "Maximum number of days to keep old audit log files; 0 for no limit.")
	flagSet.IntVar(&logOptions.MaxBackup, "audit-log-maxbackup", 0, "Maximum number of old audit log files to keep; 0 keeps all.")
	flagSet.IntVar(&logOptions.MaxSize, "audit-log-maxsize", 0, "Maximum size in megabytes of the audit log file before it is rotated; 0 for 100.")
	flagSet.BoolVar(&logOptions.Compress, "audit-log-compress", false, "Compress rotated audit log files with gzip.")
	addBackendFlags(flagSet, "log", &logOptions.Options)
	w := &o.Webhook
	flagSet.StringVar(&w.ConfigFile, "audit-webhook-config-file", "", "Kubeconfig of the audit webhook. If empty, no webhook is called.")
	flagSet.DurationVar(&w.InitialBackoff, "audit-webhook-initial-backoff", w.InitialBackoff,
		"Time to wait before the first retry of a failed request.")
	flagSet.DurationVar(&w.InitialBackoff, "audit-webhook-batch-initial-backoff", w.InitialBackoff,
		"Deprecated: use --audit-webhook-initial-backoff.")
	_ = flagSet.MarkDeprecated("audit-webhook-batch-initial-backoff", "use --audit-webhook-initial-backoff instead")
	addBackendFlags(flagSet, "webhook", &w.Options)
}

// addBackendFlags adds the flags audit-<name>-*, which both kinds of backends have.
func addBackendFlags(flagSet *pflag.FlagSet, name string, backend *backends.Options) {
	flag := func(s string) string { return "audit-" + name + "-" + s }
	flagSet.StringVar(&backend.Mode, flag("mode"), backend.Mode,
		"Delivery of audit events: "+strings.Join(backends.Modes(), ", ")+
			". batch delivers them asynchronously. blocking delays the response until they are delivered. blocking-strict also rejects a request if its first event cannot be delivered.")
	flagSet.StringVar(&backend.Version, flag("version"), backend.Version, "API group and version of the events.")
	batch := &backend.Batch
	flagSet.IntVar(&batch.BufferSize, flag("batch-buffer-size"), batch.BufferSize,
		"Maximum number of buffered events in batch mode. Further events are dropped and counted.")
	flagSet.IntVar(&batch.MaxSize, flag("batch-max-size"), batch.MaxSize, "Maximum number of events in a batch in batch mode.")
	flagSet.DurationVar(&batch.MaxWait, flag("batch-max-wait"),
		batch.MaxWait, "Maximum time before a batch is sent that is not full, in batch mode.")
	flagSet.BoolVar(&batch.Throttle, flag("batch-throttle-enable"), batch.Throttle, "Throttle batches in batch mode.")
	flagSet.Float32Var(&batch.QPS, flag("batch-throttle-qps"), batch.QPS, "Maximum average number of batches per second.")
	flagSet.IntVar(&batch.Burst, flag("batch-throttle-burst"), batch.Burst, "Maximum number of batches sent at the same time after a pause.")
	t := &backend.Truncate
	flagSet.BoolVar(&t.Enabled, flag("truncate-enabled"), t.Enabled, "Truncate events and batches that are too large.")
	flagSet.Int64Var(&t.MaxEventSize, flag("truncate-max-event-size"), t.MaxEventSize,
		"Maximum size of an event in bytes. A larger event loses its objects and then further fields.")
	flagSet.Int64Var(&t.MaxBatchSize, flag("truncate-max-batch-size"), t.MaxBatchSize, "Maximum size of a batch in bytes.")
}

func (o *AuditOptions) validate() []error {
	return append(o.Log.Validate(), o.Webhook.Validate()...)
}
