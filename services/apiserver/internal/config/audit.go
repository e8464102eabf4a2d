package config

import (
	"strings"
	"time"

	"github.com/spf13/pflag"

	"binnacle/libs/options"
	"binnacle/services/apiserver/internal/security/audit"
	"binnacle/services/apiserver/internal/security/audit/backends"
)

// AuditOptions configure the audit policy and its backends.
type AuditOptions struct {
	PolicyFile string
	Log        backends.LogOptions
	Webhook    backends.WebhookOptions
	// LatencyThreshold is the duration from which the latency of a request is recorded in its audit
	// event; 0 means half a second. No flag sets it.
	LatencyThreshold time.Duration
}

func newAuditOptions() AuditOptions {
	truncate := backends.TruncateOptions{MaxBatchSize: 10 << 20, MaxEventSize: 100 << 10}
	return AuditOptions{
		Log: backends.LogOptions{
			Format: "json",
			Options: backends.Options{
				Mode: string(backends.Blocking), Version: audit.Version, Truncate: truncate,
				Batch: backends.BatchOptions{BufferSize: 10000, MaxSize: 1},
			},
		},
		Webhook: backends.WebhookOptions{
			InitialBackoff: 10 * time.Second,
			Options: backends.Options{
				Mode: string(backends.Batch), Version: audit.Version, Truncate: truncate,
				Batch: backends.BatchOptions{BufferSize: 10000, MaxSize: 400, MaxWait: 30 * time.Second, Throttle: true, QPS: 10, Burst: 15},
			},
		},
	}
}

func (o *AuditOptions) addFlags(s *options.Sections) {
	f := s.Set("auditing")
	f.StringVar(&o.PolicyFile, "audit-policy-file", "", "File with the audit policy. Without it no request is audited. Reloaded when it changes.")
	l := &o.Log
	f.StringVar(&l.Path, "audit-log-path", "", "File that audit events are written to; '-' is standard output. If empty, there is no log.")
	f.StringVar(&l.Format, "audit-log-format", l.Format, "Form of the lines: json, or legacy for one line of text each.")
	f.IntVar(&l.MaxAge, "audit-log-maxage", 0, "How many days old files are kept; 0 keeps them whatever their age.")
	f.IntVar(&l.MaxBackup, "audit-log-maxbackup", 0, "How many old files are kept; 0 keeps all.")
	f.IntVar(&l.MaxSize, "audit-log-maxsize", 0, "The size in megabytes from which a new file is begun; 0 means 100.")
	f.BoolVar(&l.Compress, "audit-log-compress", false, "Compress old files with gzip.")
	addBackendFlags(f, "log", &l.Options)
	w := &o.Webhook
	f.StringVar(&w.ConfigFile, "audit-webhook-config-file", "", "Kubeconfig of a service that audit events are sent to. If empty, there is no webhook.")
	f.DurationVar(&w.InitialBackoff, "audit-webhook-initial-backoff", w.InitialBackoff, "How long to wait before what failed is sent again the first time.")
	f.DurationVar(&w.InitialBackoff, "audit-webhook-batch-initial-backoff", w.InitialBackoff, "The former name of --audit-webhook-initial-backoff.")
	_ = f.MarkDeprecated("audit-webhook-batch-initial-backoff", "use --audit-webhook-initial-backoff instead")
	addBackendFlags(f, "webhook", &w.Options)
}

// addBackendFlags adds the flags that both kinds of backends share.
func addBackendFlags(f *pflag.FlagSet, name string, o *backends.Options) {
	flag := func(s string) string { return "audit-" + name + "-" + s }
	f.StringVar(&o.Mode, flag("mode"), o.Mode, "When events are delivered, one of "+strings.Join(backends.Modes(), ", ")+". Blocking has each request wait for its events; blocking-strict also refuses a request whose first event cannot be delivered.")
	f.StringVar(&o.Version, flag("version"), o.Version, "API group and version of the events.")
	b := &o.Batch
	f.IntVar(&b.BufferSize, flag("batch-buffer-size"), b.BufferSize, "How many events may wait in the mode batch; those beyond are lost, and counted.")
	f.IntVar(&b.MaxSize, flag("batch-max-size"), b.MaxSize, "How many events go together at most in the mode batch.")
	f.DurationVar(&b.MaxWait, flag("batch-max-wait"), b.MaxWait, "How long an event waits for others in the mode batch.")
	f.BoolVar(&b.Throttle, flag("batch-throttle-enable"), b.Throttle, "Bound how many batches go a second in the mode batch.")
	f.Float32Var(&b.QPS, flag("batch-throttle-qps"), b.QPS, "How many batches go a second on average.")
	f.IntVar(&b.Burst, flag("batch-throttle-burst"), b.Burst, "How many batches may go at once after a pause.")
	t := &o.Truncate
	f.BoolVar(&t.Enabled, flag("truncate-enabled"), t.Enabled, "Shorten events that are too large.")
	f.Int64Var(&t.MaxEventSize, flag("truncate-max-event-size"), t.MaxEventSize, "Maximum size of an event in bytes. A larger event loses its objects and then further fields.")
	f.Int64Var(&t.MaxBatchSize, flag("truncate-max-batch-size"), t.MaxBatchSize, "Maximum size of a batch in bytes.")
}

func (o *AuditOptions) validate() []error {
	return append(o.Log.Validate(), o.Webhook.Validate()...)
}
