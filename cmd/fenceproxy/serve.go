package main

type serveCmd struct {
	Config string `short:"c" required:"" placeholder:"FILE" help:"Configuration file."`
}

func (serveCmd) Run() error { return nil }

type checkCmd struct {
	Config string `short:"c" required:"" placeholder:"FILE" help:"Configuration file."`
}

func (checkCmd) Run() error { return nil }
