import "uplot/dist/uPlot.min.css";
import "./style/tokens.css";
import "./style/page.css";
import "./style/fleet.css";
import "./style/dependency.css";

import { render } from "preact";
import { App } from "./app";
import { feed } from "./feed";

render(<App />, document.getElementById("app")!);
feed.start();
