package rig

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/jackc/pgx/v5"

	"github.com/fenceproxy/fenceproxy/election/postgres"
	"github.com/fenceproxy/fenceproxy/internal/servers"
)

// BackendNames are the election backends that can be started.
var BackendNames = []string{"memory", "redis", "valkey", "postgres", "zookeeper", "kubernetes"}

// A BackendServer is an election backend with a server of its own.
type BackendServer struct {
	Name, URL, Version string

	stop func()
}

// Stop ends the server.
func (b *BackendServer) Stop() {
	if b.stop != nil {
		b.stop()
	}
}

// StartBackend starts the server of an election backend: one node each. kube is the Go
// module of the Kubernetes API server of the tests, which is built where
// KUBEBUILDER_ASSETS does not name one. A program that is missing is an error that says
// what to install.
func StartBackend(ctx context.Context, name, kube string) (*BackendServer, error) {
	of := func(p *servers.Process, err error) (*BackendServer, error) {
		if err != nil {
			return nil, err
		}
		return &BackendServer{Name: name, Version: p.Version, URL: name + "://" + p.Addr, stop: p.Stop}, nil
	}
	switch name {
	case "memory":
		return &BackendServer{Name: name, URL: "memory:"}, nil
	case "redis":
		return of(servers.StartRedis(ctx, servers.RedisOptions{}))
	case "valkey":
		return of(servers.StartValkey(ctx, servers.RedisOptions{}))
	case "postgres":
		p, err := servers.StartPostgres(ctx, servers.PostgresOptions{})
		b, err := of(p, err)
		if err != nil {
			return nil, err
		}
		b.URL = p.DSN(servers.Superuser, "postgres")
		if err := electionsTable(ctx, b.URL); err != nil {
			p.Stop()
			return nil, err
		}
		return b, nil
	case "zookeeper":
		z, err := servers.StartZooKeeper(ctx, servers.ZooKeeperOptions{Nodes: 1})
		if err != nil {
			return nil, err
		}
		return &BackendServer{Name: name, URL: "zookeeper://" + z.Addrs(), stop: z.Stop}, nil
	case "kubernetes":
		programs, err := servers.FindKube()
		if errors.Is(err, servers.ErrNotInstalled) && kube != "" {
			programs, err = servers.BuildKube(ctx, kube, io.Discard)
		}
		if err != nil {
			return nil, err
		}
		k, err := servers.StartKube(ctx, servers.KubeOptions{Programs: programs})
		if err != nil {
			return nil, err
		}
		config, err := k.Kubeconfig()
		if err != nil {
			k.Stop()
			return nil, err
		}
		return &BackendServer{Name: name, Version: programs.Version, URL: "kubernetes:///default?kubeconfig=" + config, stop: k.Stop}, nil
	}
	return nil, fmt.Errorf("no election backend %q: there are %v", name, BackendNames)
}

func electionsTable(ctx context.Context, dsn string) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	sql, err := postgres.SchemaSQL("")
	if err != nil {
		return err
	}
	_, err = conn.PgConn().Exec(ctx, sql).ReadAll()
	return err
}
