package config

import (
	"errors"
	"os"
	"time"

	"binnacle/libs/options"
	"binnacle/services/apiserver/internal/storage/etcd/snapshot"
)

// SnapshotName is the name of the command that saves, inspects and restores snapshots of
// etcd.
const SnapshotName = "snapshot"

// SnapshotCommand returns the command. Without a subcommand it saves.
func SnapshotCommand() options.Command {
	save := &saveOptions{snapshot.SaveCommand{Timeout: 10 * time.Minute, Keep: 7}}
	restore := &restoreOptions{snapshot.RestoreCommand{RestoreOptions: snapshot.RestoreOptions{RevisionBump: snapshot.DefaultRevisionBump}}}
	status := &statusOptions{snapshot.StatusCommand{Output: os.Stdout}}
	return options.Command{
		Name: SnapshotName, Short: "Save, restore and inspect snapshots of etcd.", Options: save, Run: save.Run,
		Commands: []options.Command{
			{Name: "save", Short: "Save the content of a running etcd to a file.", Options: save, Run: save.Run},
			{Name: "restore", Short: "Create the data folder of an etcd member from a snapshot.", Options: restore, Run: restore.Run},
			{Name: "status", Short: "Verify a snapshot and print its revision, keys and size.", Options: status, Run: status.Run},
		},
	}
}

// saveOptions are the flags of "snapshot save".
type saveOptions struct{ snapshot.SaveCommand }

// AddFlags implements options.Options.
func (o *saveOptions) AddFlags(s *options.Sections) {
	f := s.Set("snapshot")
	f.StringVar(&o.Endpoint, "endpoint", "", "URL of one etcd member, or the value of an API server's --embedded-etcd-listen-client-url.")
	f.StringVar(&o.CAFile, "cacert", "", "CA bundle that verifies the server.")
	f.StringVar(&o.CertFile, "cert", "", "Client certificate.")
	f.StringVar(&o.KeyFile, "key", "", "Key of the client certificate.")
	f.StringVar(&o.To, "to", "", "File to write. It must not exist.")
	f.StringVar(&o.ToDir, "to-dir", "", "Folder to write to instead of --to. The file name contains the time.")
	f.IntVar(&o.Keep, "keep", o.Keep, "With --to-dir, number of snapshots to keep in the folder. Older snapshots are removed.")
	f.DurationVar(&o.Timeout, "timeout", o.Timeout, "Maximum time to copy the content. An unreachable server is reported within 5s.")
}

// Complete implements options.Options.
func (o *saveOptions) Complete() error { return nil }

// Validate implements options.Options.
func (o *saveOptions) Validate() (errs []error) {
	if o.Endpoint == "" || (o.To == "") == (o.ToDir == "") {
		errs = append(errs, errors.New("--endpoint and one of --to and --to-dir are required"))
	}
	if o.Keep < 1 {
		errs = append(errs, errors.New("--keep must be at least 1"))
	}
	if o.Timeout <= 0 {
		errs = append(errs, errors.New("--timeout must be positive"))
	}
	return errs
}

// restoreOptions are the flags of "snapshot restore".
type restoreOptions struct{ snapshot.RestoreCommand }

// AddFlags implements options.Options.
func (o *restoreOptions) AddFlags(s *options.Sections) {
	f := s.Set("restore")
	f.StringVar(&o.From, "from", "", "Snapshot file, or data folder of a stopped etcd.")
	f.StringVar(&o.DataDir, "data-dir", "", "Data folder to create. It must not exist.")
	f.Uint64Var(&o.RevisionBump, "bump-revision", o.RevisionBump, "Number to add to the revision. Older revisions are marked as compacted, so that clients list again. 0 keeps the revision.")
	c := s.Set("cluster")
	c.StringVar(&o.Name, "name", "", "Name of the member. Without it, the folder is one for the etcd embedded in an API server.")
	c.StringVar(&o.InitialCluster, "initial-cluster", "", "Members of the new cluster, as NAME=PEER-URL,...")
	c.StringVar(&o.InitialClusterToken, "initial-cluster-token", "", "Token of the new cluster (default etcd-cluster).")
	c.StringSliceVar(&o.PeerURLs, "initial-advertise-peer-urls", nil, "Peer URLs of this member.")
}

// Complete implements options.Options.
func (o *restoreOptions) Complete() error { return nil }

// Validate implements options.Options.
func (o *restoreOptions) Validate() (errs []error) {
	if o.From == "" || o.DataDir == "" {
		errs = append(errs, errors.New("--from and --data-dir are required"))
	}
	if cluster := o.InitialCluster != "" || len(o.PeerURLs) > 0; cluster != (o.Name != "") {
		errs = append(errs, errors.New("--name, --initial-cluster and --initial-advertise-peer-urls are required together"))
	}
	return errs
}

// statusOptions are the flags of "snapshot status".
type statusOptions struct{ snapshot.StatusCommand }

// AddFlags implements options.Options.
func (o *statusOptions) AddFlags(s *options.Sections) {
	s.Set("status").StringVar(&o.From, "from", "", "Snapshot file, or data folder of a stopped etcd.")
}

// Complete implements options.Options.
func (o *statusOptions) Complete() error { return nil }

// Validate implements options.Options.
func (o *statusOptions) Validate() []error {
	if o.From == "" {
		return []error{errors.New("--from is required")}
	}
	return nil
}
