package app

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"binnacle/libs/options"
	"binnacle/services/apiserver/internal/storage/etcd"
)

// SnapshotName is the command that saves what an etcd holds while it runs.
const SnapshotName = "snapshot"

// SnapshotOptions say which etcd is saved, and where to.
type SnapshotOptions struct {
	Endpoint                  string
	CAFile, CertFile, KeyFile string
	To                        string
	Timeout                   time.Duration
}

// SnapshotCommand is that command.
func SnapshotCommand() options.Command {
	o := &SnapshotOptions{Timeout: 10 * time.Minute}
	return options.Command{Name: SnapshotName, Short: "Save what an etcd holds, while it runs, to a file.", Options: o, Run: o.Run}
}

// AddFlags implements options.Options.
func (o *SnapshotOptions) AddFlags(s *options.Sections) {
	f := s.Set("snapshot")
	f.StringVar(&o.Endpoint, "endpoint", "", "URL of one etcd server: what an API server has as --embedded-etcd-listen-client-url, or a member of a cluster.")
	f.StringVar(&o.CAFile, "cacert", "", "CA bundle that verifies the server.")
	f.StringVar(&o.CertFile, "cert", "", "Client certificate.")
	f.StringVar(&o.KeyFile, "key", "", "Key of the client certificate.")
	f.StringVar(&o.To, "to", "", "File to write, which must not be there yet.")
	f.DurationVar(&o.Timeout, "timeout", o.Timeout, "How long it may take.")
}

// Complete implements options.Options.
func (o *SnapshotOptions) Complete() error { return nil }

// Validate implements options.Options.
func (o *SnapshotOptions) Validate() (errs []error) {
	if o.Endpoint == "" || o.To == "" {
		errs = append(errs, errors.New("--endpoint and --to must be given"))
	}
	if o.Timeout <= 0 {
		errs = append(errs, errors.New("--timeout must be positive"))
	}
	return errs
}

// Run saves the snapshot.
func (o *SnapshotOptions) Run(ctx context.Context, log *slog.Logger) error {
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	client, err := etcd.Dial(etcd.DialOptions{Servers: []string{o.Endpoint}, CAFile: o.CAFile, CertFile: o.CertFile, KeyFile: o.KeyFile, Logger: log})
	if err != nil {
		return err
	}
	defer client.Close()
	begin := time.Now()
	size, err := etcd.SaveSnapshot(ctx, client, o.To)
	if err != nil {
		return err
	}
	log.Info("saved a snapshot", "file", o.To, "bytes", size, "took", time.Since(begin))
	return nil
}
